"""What every row needs: processes that always end, clocks over /proc, medians, floors, the table."""
