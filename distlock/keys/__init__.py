"""Names of locks in the code, and of nodes on the server.

`templates` turns ``"stock:<sku>"`` and a call's arguments into a key, and a key into the name of a
node. `values` writes one value as text. `znodes` builds and parses Curator's names for the nodes of
a queue, and reads the data of a node. `limits` has the limits of a server.
"""

from __future__ import annotations
