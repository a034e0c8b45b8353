"""Everything that the user sees of a run: lines, tables, plots and pages."""
