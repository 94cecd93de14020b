"""Archives of code: what is made of a git tree, and what a worker makes of an archive. git, tar and files, no network.

stamp.py      what a call carries of the commit that it was made in
trees.py      the git tree that a file lies in
packing.py    an archive of a commit        unpacking.py   its files, with every bound kept
shelf.py      the unpacked commits of a machine
"""
