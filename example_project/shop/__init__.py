"""The shop: products, orders, a payment stub, the till, and other ways to sell the last piece."""
