"""Journals of what members delivered: written beside delivery, read after crashes, audited on Spark."""
