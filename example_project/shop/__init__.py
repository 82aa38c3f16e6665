"""The shop: products, orders, a payment stub and four ways to sell the last piece."""
