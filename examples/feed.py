"""A price feed: a subscriber that joins late, or is slow, gets the last price of each symbol, and then each change.

python examples/feed.py publish a tea milk      and, at any time: python examples/feed.py watch b
A third argument of watch is the number of seconds that the watcher spends on each line.
"""

import json
import random
import sys
import time

from seqcast.blocks import Feed, Snapshot

task, name, *rest = sys.argv[1:]

with Feed("feed", name=name) as feed:
    if task == "watch":
        for item in feed.subscribe(behind_s=0.5):
            if isinstance(item, Snapshot):
                print("snapshot", item.number, item.skipped, json.dumps(item.values), flush=True)
            else:
                print("update", item.number, item.key, *item.value, flush=True)
            time.sleep(float(rest[0]) if rest else 0)
    else:
        last = {symbol: feed.snapshot().values.get(symbol, [0, 100.0]) for symbol in rest}  # as left
        while True:
            symbol = random.choice(rest)
            number, price = last[symbol]
            last[symbol] = [number + 1, round(price + random.uniform(-1, 1), 2)]
            feed.publish(symbol, last[symbol])
            time.sleep(0.001)
