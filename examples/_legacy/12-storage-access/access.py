"""The three ways to a storage, from a script: a URL, keys that end, and the bytes themselves.

lakeshore storage add my-bucket --kind s3 --bucket <bucket> --creds <secret>
python access.py --storage my-bucket --mode presign        # a URL to get an object with
python access.py --storage my-bucket --mode credentials    # keys for boto3 or the AWS tools
python access.py --storage my-bucket --mode put            # store an object, and read it back
"""

from __future__ import annotations

import argparse

import dreamlake.lakeshore as dls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", required=True, help="its name, or <namespace>/<name>")
    parser.add_argument("--mode", required=True, choices=("presign", "credentials", "put"))
    parser.add_argument("--key", default="test/hello.txt", help="of the object (test/hello.txt)")
    given = parser.parse_args()
    with dls.Storage(given.storage) as store:
        if given.mode == "presign":
            print(store.presign(given.key, operation="get", expires_in=600))
        elif given.mode == "credentials":
            keys = store.credentials(duration_seconds=900)
            print(f"{keys.access_key_id} until {keys.expiration}")
            print("boto3.Session(**keys.to_boto3_kwargs()) takes", ", ".join(sorted(keys.to_boto3_kwargs())))
        else:
            store.put_text(given.key, "hello from access.py\n")
            print(f"{given.key}: {len(store.get(given.key))} bytes")


if __name__ == "__main__":
    main()
