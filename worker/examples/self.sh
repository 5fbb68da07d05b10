#!/bin/sh
# Builds bin/holdfast of this repository in a step on a base of Debian. The sources go to the step as an archive on its
# standard input, so that an unchanged tree is a hit wherever it is; Go, and the certificates that it trusts, are those
# of this machine; modules come from GOPROXY, and stay, as compiled packages do, in caches that are locked: two builds at
# once do not meet there.
#
# usage: self.sh STORE DIRECTORY, as root. The program is DIRECTORY/holdfast. Debian is the base "debian" of the store; if
# there is none, mmdebstrap makes it, of the release SUITE.
set -eu
store=$1 out=$2
repo=$(cd "$(dirname "$0")/../.." && pwd)
go=$(go env GOROOT)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! holdfastd --root "$store" snapshot stat debian >/dev/null 2>&1; then
	mmdebstrap --quiet --variant=minbase "${SUITE:-stable}" "$scratch/debian.tar"
	holdfastd --root "$store" import "$scratch/debian.tar" debian
fi

sources() {
	git -C "$repo" ls-files -z --cached --others --exclude-standard |
		tar -C "$repo" --null --files-from=- --ignore-failed-read --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c
}
sources | holdfastd --root "$store" step --base debian --stdin --network host \
	--mount "$go:/usr/local/go:ro" \
	--mount /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro \
	--mount type=cache,id=go-modules,target=/cache/modules,sharing=locked \
	--mount type=cache,id=go-build,target=/cache/build,sharing=locked \
	--env GOPROXY="$(go env GOPROXY)" --env GOMODCACHE=/cache/modules --env GOCACHE=/cache/build --env GOFLAGS=-buildvcs=false \
	--env GOWORK=off --env GOTOOLCHAIN=local --env CGO_ENABLED=0 --env PATH=/usr/local/go/bin:/usr/bin:/bin \
	--output /out/holdfast:"$out/" \
	-- sh -ec 'mkdir /src && cd /src && tar -x && cd command && go build -o /out/holdfast ./holdfast'
