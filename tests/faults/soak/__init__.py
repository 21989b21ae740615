"""Long runs with many faults: does goodput predict the ETTR that is measured?"""
