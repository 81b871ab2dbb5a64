"""A feed of prices: publishers multicast changes, and who joins late begins with the last price of each symbol.

python examples/feed.py publish a tea milk      and, at any time: python examples/feed.py watch b
"""

import json
import random
import sys
import threading
import time

import seqcast

task, name, *symbols = sys.argv[1:]
prices = {}  # by symbol: how often it has changed, and the last price


class Prices:
    def get_state(self, write):
        write(json.dumps(prices).encode())

    def set_state(self, read):
        prices.clear()
        prices.update(json.loads(read()))

    def merge_state(self, others):  # sides of a partition meet: of each symbol the later price
        for other in others:
            for symbol, last in json.loads(other.read()).items():
                prices[symbol] = max(last, prices.get(symbol, last))


def follow(group):
    for event in group.events():
        if isinstance(event, seqcast.Message):
            symbol, number, price = json.loads(event.payload)
            prices[symbol] = [number, price]
            if task == "watch":
                print(symbol, number, price, flush=True)
        elif isinstance(event, seqcast.Lost):
            print("lost:", event, file=sys.stderr)


with seqcast.join("feed", name=name, state=Prices(), slow="exclude", rejoin=True) as group:
    if task == "watch":
        print("begins with", json.dumps(prices), flush=True)
        follow(group)
    else:
        threading.Thread(target=follow, args=(group,), daemon=True).start()
        last = {
            symbol: prices.get(symbol, [0, 100.0]) for symbol in symbols
        }  # goes on where a publisher before it ended
        while True:
            symbol = random.choice(symbols)
            number, price = last[symbol]
            last[symbol] = [number + 1, round(price + random.uniform(-1, 1), 2)]
            group.send(json.dumps([symbol, *last[symbol]]).encode())
            time.sleep(0.001)
