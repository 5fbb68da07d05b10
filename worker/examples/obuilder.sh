#!/bin/sh
# A build as OBuilder runs it from a specification, on holdfastd's store in place of OBuilder's:
#
#	((from BASE)
#	 (env NAME world)
#	 (workdir /src)
#	 (copy (src greeting.in) (dst /src/))
#	 (run (cache (words (target /cache)))
#	      (secrets (token (target /run/secrets/token)))
#	      (shell "..."))
#	 (user (uid 1000) (gid 1000))
#	 (run (shell "...")))
#
# Each line of it is a step on the result of the one before. What was run before, with the same content, is not run again.
#
# usage: obuilder.sh STORE BASE DIRECTORY, where BASE was imported (holdfastd import) and has sh, sed, id and cat, and
# DIRECTORY has the files greeting.in, with @NAME@ in it, and token. The result is DIRECTORY/greeting.
set -eu
store=$1 base=$2 dir=$3

# run runs a step on the result of the last one. Its report says whether it was run, and how the result is called.
run() {
	report=$(holdfastd --root "$store" step --base "$base" --env NAME=world --workdir /src "$@" 2>&1 >&3) || { echo "$report" >&2; exit 1; }
	echo "$report"
	base=$(echo "$report" | sed -n 's/^[a-z]* \(step-[0-9a-f]*\) .*/\1/p') # ran, hit or fetched
} 3>&1

run --copy "$dir/greeting.in:/src/" -- true

run --mount type=cache,id=words,target=/cache,sharing=locked --secret "id=token,src=$dir/token" -- sh -c '
	echo "hello" >>/cache/words
	test -s /run/secrets/token # as a download would need it
	sed "s/@NAME@/$NAME/" greeting.in >greeting'
made=$base

run --user 1000:1000 -- sh -c 'test "$(id -u)" = 1000 && cat greeting'

echo "changed by the step that made it:"
holdfastd --root "$store" snapshot diff "$made"
holdfastd --root "$store" cp "$base:/src/greeting" "$dir/greeting"
