"""The intermediate representation: expressions, statements and functions; docs/ir.md is its grammar and meaning."""
