"""What `lakeshore doctor` looks at, a noun a file. A check changes nothing, shows no secret, and never guesses."""
