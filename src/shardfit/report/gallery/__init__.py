"""The gallery of a survey: what a page, served or written to a file, shows of a ledger."""
