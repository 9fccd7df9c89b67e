"""fewtags: tag a few images, get them all tagged.

>>> import fewtags                                             # doctest: +SKIP
>>> run = fewtags.train("photos", method="d2l", out="run")     # doctest: +SKIP
>>> fewtags.load("run").tag(["a.jpg"])                         # doctest: +SKIP

Heavy libraries are imported by the functions that need them, so `import fewtags` stays fast.
"""

__version__ = "0.1.0"
