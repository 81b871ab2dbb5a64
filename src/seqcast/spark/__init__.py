"""Jobs on PySpark. Only this package imports it."""
