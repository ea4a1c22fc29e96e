"""How the embedded broker's JVM runs."""

from include.stack import kafka


def test_the_broker_and_the_tool_that_formats_its_folder_compile_with_the_quick_compiler_only() -> None:
    for heap in ("-Xmx512m", "-Xmx128m"):
        assert {heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} <= set(kafka._java(heap))
