#!/usr/bin/env bash
# Runs Julia with Fovea importable:  tools/julia.sh ARGUMENTS...
#
# Takes $JULIA, else the julia on the PATH, else Debian 11's 1.5.3, which it fetches once and unpacks (without installing
# anything) into a cache folder: $FOVEA_JULIA_DIR, else ~/.cache/fovea/julia-1.5.3. If none can be had it says why in
# one line and exits with 77. Called by ./dev.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
folder=${FOVEA_JULIA_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/fovea/julia-1.5.3}
mirrors=(http://deb.debian.org/debian http://archive.debian.org/debian)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

no_julia() { printf 'no Julia: %s\n' "$*" >&2; exit 77; }

# apt with lists, cache and status of its own below $1: it neither needs root nor changes the machine.
own_apt() {
  local at=$1
  shift
  apt-get -qq -o "Dir::State=$at" -o "Dir::State::status=$at/status" -o "Dir::Cache=$at/cache" \
    -o "Dir::Etc::sourcelist=$at/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::main=/dev/null \
    -o Dir::Etc::parts=/dev/null -o Dir::Etc::preferencesparts=/dev/null -o Debug::NoLocking=1 \
    -o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none -o Acquire::Retries=1 -o Acquire::http::Timeout=15 \
    -o Acquire::Check-Valid-Until=false -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
    -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false "$@"
}

read_lists() {  # from the first mirror that still has Debian 11
  local at=$1 mirror
  for mirror in "${mirrors[@]}"; do
    echo "deb [signed-by=$keyring] $mirror bullseye main" >"$at/sources.list"
    # apt-get update counts a list that it could not read as a warning: only the packages themselves tell.
    if own_apt "$at" update >"$at/log" 2>&1 && own_apt "$at" --print-uris install julia >"$at/uris" 2>>"$at/log"; then
      return
    fi
  done
  no_julia "none is on the PATH, and Debian 11's can't be fetched: $(grep -m 1 '^[EW]:' "$at/log" || echo 'apt-get failed')"
}

fetch() {
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    no_julia "none is on the PATH, and this machine has no apt-get to fetch Debian's"
  [[ $(uname -m) == x86_64 ]] || no_julia "none is on the PATH, and only the x86-64 one of Debian 11 can be fetched"
  [[ -r $keyring ]] || no_julia "none is on the PATH, and $keyring, which Debian's is checked with, is not there"
  mkdir -p "$(dirname "$folder")"
  local at
  at=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf -- "$at"' EXIT
  mkdir -p "$at/lists/partial" "$at/cache/archives/partial" "$at/root"
  : >"$at/status"
  printf '== fetching Julia 1.5.3 of Debian 11 into %s\n' "$folder" >&2
  read_lists "$at"
  own_apt "$at" --download-only --no-install-recommends -y install julia >"$at/log" 2>&1 ||
    no_julia "fetching Debian 11's failed: $(grep -m 1 '^E:' "$at/log" || echo 'apt-get failed')"
  local package
  for package in "$at"/cache/archives/*.deb; do
    # The C and C++ libraries are the machine's own: its programs must not see older ones.
    case ${package##*/} in libc6_* | libgcc-s1_* | libstdc++6_* | gcc-*-base_*) continue ;; esac
    dpkg-deb -x "$package" "$at/root"
  done
  # Whole or not there; another process may have been first.
  mv -T "$at/root" "$folder" 2>/dev/null || [[ -x $folder/usr/bin/julia ]] ||
    no_julia "$folder is in the way: move it elsewhere"
  rm -rf -- "$at"
  trap - EXIT
}

fetched_julia() {
  [[ -x $folder/usr/bin/julia ]] || fetch
  local lib=$folder/usr/lib/x86_64-linux-gnu
  export LD_LIBRARY_PATH=$lib:$lib/julia:$lib/openblas-pthread:$lib/blas:$lib/lapack:$folder/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  julia=$folder/usr/bin/julia
  # Its OpenBLAS (0.3.9) takes every processor that is younger than itself for one of 2004.
  local flags
  flags=" $(grep -m 1 '^flags' /proc/cpuinfo || true) "
  if [[ -z ${OPENBLAS_CORETYPE:-} && $flags == *" avx512vl "* ]]; then
    export OPENBLAS_CORETYPE=SkylakeX
  elif [[ -z ${OPENBLAS_CORETYPE:-} && $flags == *" avx2 "* ]]; then
    export OPENBLAS_CORETYPE=Haswell
  fi
}

julia=${JULIA:-$(command -v julia || true)}
[[ -n $julia ]] || fetched_julia
if [[ -z ${FOVEA_LIBRARY:-} && -e $root/build/libfovea.so ]]; then
  export FOVEA_LIBRARY=$root/build/libfovea.so
fi
export JULIA_LOAD_PATH=$root/bindings/julia:${JULIA_LOAD_PATH:-}
exec "$julia" "$@"
