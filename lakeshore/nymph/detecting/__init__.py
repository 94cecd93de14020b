"""What a host is, found out in parts: parsers without I/O over what commands, files and metadata services say, and the
few lines that ask them. `..detect` puts the parts together.
"""
