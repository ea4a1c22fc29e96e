"""The shape of the bank's real transactions (2013-01 to 2014-03, 36,464 rows, 908 accounts), measured once.

The PKDD'99 financial data set in the layout of the StreamingLedger sample. Amounts are quantiles in crowns at PROBABILITIES;
between two of them the distribution is taken as even.
"""

from dataclasses import dataclass

FIRST_DAY = "2013-01-01"
TRANSACTIONS_PER_ACCOUNT = 40.16
ACCOUNTS_PER_CUSTOMERS = (4500, 5369)

# Accounts opened a month: about 70 each in 2013, then 24.
OPENING_MONTHS = 15
OPENING_WEIGHTS = (71, 77, 69, 59, 62, 68, 80, 77, 68, 49, 83, 73, 20, 27, 25)

# Banking hours, to the second.
OPENS_AT, CLOSES_AT = 8 * 3600, 18 * 3600

PROBABILITIES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)


@dataclass(frozen=True)
class Kind:
    """A kind of transaction: its words, its amounts at PROBABILITIES in crowns, and what amounts are multiples of, in cents."""

    type: str
    operation: str
    amounts: tuple[float, ...]
    step: int


OPENING = Kind("Credit", "Credit in Cash", (200, 200, 300, 300, 400, 700, 900, 1000, 1100, 1100, 27666), 10000)
# The sample has tenths of a crown here; whole cents make the test of exact sums sharper.
INTEREST = Kind("Credit", "", (0.5, 8.3, 20.2, 36.91, 80.9, 121.65, 175.58, 233.6, 274.3, 361.16, 465.3), 1)
SALARY = Kind("Credit", "Collection from Another Bank", (2901, 2921, 3046, 3098, 3285, 10266, 30408, 44333, 49200, 67071, 74648), 100)
PENSION = Kind("Credit", "Collection from Another Bank", (4019, 4042, 4203, 4276, 4794, 5772, 6246, 6604, 6726, 6934, 6945), 100)
CASH_CREDIT = Kind("Credit", "Credit in Cash", (100, 300, 900, 1600, 5643, 13140, 21950, 32561, 40113, 47926, 49992), 100)
WITHDRAWAL = Kind("Debit", "Cash Withdrawal", (100, 200, 510, 800, 1800, 4200, 11400, 20900, 27300, 48388, 64700), 10000)
FEE = Kind("Debit", "Cash Withdrawal", (14.6, 14.6, 14.6, 14.6, 14.6, 14.6, 14.6, 14.6, 30, 100, 100), 10)
SANCTION = Kind("Debit", "Cash Withdrawal", (0.1, 0.1, 0.11, 0.2, 0.7, 3.05, 6.38, 14.69, 19.12, 26.75, 27.2), 10)
REMITTANCE = Kind("Debit", "Remittance to Another Bank", (1, 17, 89, 287, 1010, 2360, 4507, 7266, 8462, 11126, 13841), 100)
CARD = Kind("Debit", "Credit Card Withdrawal", (400, 400, 400, 400, 1600, 2700, 3250, 3600, 3750, 3870, 3900), 10000)
KINDS = (OPENING, INTEREST, SALARY, PENSION, CASH_CREDIT, WITHDRAWAL, FEE, SANCTION, REMITTANCE, CARD)

# Income and standing orders are booked once a month, on one of these days.
BOOKING_DAYS = (5, 14)
SALARY_SHARE, PENSION_SHARE = 0.21, 0.2  # of the accounts; the others live on cash credits

# By months since the account was opened (the last number holds from then on).
INTEREST_BY_AGE = (0.36, 0.82, 0.83, 0.85, 0.92, 1.0)  # probability at the end of the month
FEE_BY_AGE = (0.0, 0.02, 0.06, 0.08, 0.37, 0.96)
SALARY_BY_AGE = (0.5, 0.1, 0.1, 0.2, 0.5, 1.0)  # probability on the account's booking day
PENSION_BY_AGE = (0.6, 1.0)
ORDERS_BY_AGE = (0.0, 0.0, 0.03, 0.05, 0.2, 0.75, 1.0)
WITHDRAWALS_BY_AGE = (0.01, 0.25, 0.65, 0.8, 1.1, 1.8)  # a month, before the season
CASH_BOOKED_BY_AGE = (0.6, 1.5, 0.9, 0.72, 0.75, 0.95)  # a month in the booking days, for accounts that live on cash
CASH_CREDITS = 0.42  # a month on any day, for the same accounts
SANCTION_PROBABILITY = 0.005  # at the end of the month
CARD_MONTHLY = 0.0016
ORDER_SHARES = (0.63, 0.39, 0.18)  # accounts with a first, second, third standing order
WITHDRAWAL_SEASON = {12: 1.3, 1: 3.2, 2: 0.75, 3: 0.9}  # by month of the year

USUAL_BALANCE = 4_500_000  # in cents

FREQUENCIES = {"Monthly Issuance": 0.926, "Weekly Issuance": 0.053, "Issuance After Transaction": 0.021}
DISTRICTS = 77
FIRST_DISTRICT_SHARE = 0.123  # the capital; the others share the rest evenly

FEMALE_NAMES = ("Emma", "Olivia", "Sophia", "Ava", "Isabella", "Mia", "Harper", "Scarlett", "Zoey", "Lily", "Aubrey", "Zoë")
MALE_NAMES = ("Noah", "Liam", "Mason", "Jacob", "William", "Ethan", "James", "Lucas", "Owen", "Levi", "Henry", "René")
MIDDLE_NAMES = ("", "Avaya", "Everest", "Brooklynne", "Irvin", "Parker", "Blake", "Sawyer", "Angel", "Jordan", "Tyler", "Carson")
LAST_NAMES = (
    *("Martinez", "Anderson", "Taylor", "Thomas", "Hernandez", "Moore", "Lee", "Jackson", "Smith", "Johnson"),
    *("White", "Williams", "Lopez", "Brown", "Harris", "Clark", "O'Neill", "Walker", "Hall", "Young"),
)
STREETS = ("Wellington Ave.", "W. Berkshire St.", "Second St.", "Sunnyslope Street", "Joy Ridge St.", "Bradford Street")
UNITS = ("", "", "", "", "", "Unit 1", "Unit 1B", "Apt. 3D")
CITIES = (  # the first belongs to district 1
    *(("New York City", "NY"), ("Albuquerque", "NM"), ("Indianapolis", "IN"), ("Chicago", "IL"), ("Los Angeles", "CA")),
    *(("Houston", "TX"), ("Charleston", "SC"), ("Phoenix", "AZ"), ("Philadelphia", "PA"), ("Portland", "OR")),
    *(("Boston", "MA"), ("Hartford", "CT"), ("Providence", "RI"), ("Worcester", "MA")),
)
MAIL_HOSTS = ("gmail.com", "outlook.com")
