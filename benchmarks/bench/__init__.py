"""distlock beside other locks, at the same work in the same minute: ``make bench``.

- `__main__`: the command: rounds of all works by all contenders, interleaved
- `works`: what is done, and by whom
- `pool`, `worker`, `Worker.java`, `libraries`, `floor`: the processes that do it
- `witness`: who watches that there are never two holders
- `figures`, `targets`: medians, quartiles and ratios, and what they are to reach
- `page`, `plots`: how they are shown
"""
