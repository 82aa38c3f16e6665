"""Names: of locks in the code, and of nodes on the server.

`templates` turns ``"stock:<sku>"`` and a call's arguments into a key, and a key into the name of a
node; `values` writes one value as text. `znodes` knows the names that Curator gives to the nodes
of a queue, in both directions, and what a node says of its owner.
"""

from __future__ import annotations
