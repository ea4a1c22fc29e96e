"""The second opinion: silver and gold recomputed from bronze, by batch SQL over whole tables, and compared with what is stored.

Written from the meaning of the tables and not from the jobs: of silver and gold it shares the parsing of JSON values and the recorded
texts of the row rules, nothing else.
"""
