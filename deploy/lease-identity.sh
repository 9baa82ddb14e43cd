#!/bin/sh
# Identity of an edge or hub for leases: sh lease-identity.sh NAME ADDRESS [DAYS]
# Writes NAME.pem (certificate and key), signed by lease-ca.pem and lease-ca.key, which are made first
# if they are missing. ADDRESS is IP:127.0.0.1 or DNS:hub.example; edges call the hub by it. Keep
# lease-ca.key off all hosts: whoever has it can lease the keys of open collections.
# Every edge has a NAME of its own, and keeps it when its certificate is replaced.
set -eu
name=$1 address=$2 days=${3:-90}
umask 077
new_key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
if [ ! -e lease-ca.key ]; then
    # shellcheck disable=SC2086 # several words
    openssl req -x509 $new_key -keyout lease-ca.key -out lease-ca.pem -days 3650 -subj "/CN=lease CA"
    chmod 644 lease-ca.pem
fi
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
printf 'basicConstraints=critical,CA:FALSE\nsubjectAltName=%s\n' "$address" > "$folder/extensions"
# shellcheck disable=SC2086
openssl req $new_key -keyout "$folder/key" -out "$folder/request" -subj "/CN=$name"
openssl x509 -req -in "$folder/request" -CA lease-ca.pem -CAkey lease-ca.key -CAcreateserial \
    -CAserial "$folder/serial" -days "$days" -extfile "$folder/extensions" -out "$folder/certificate"
cat "$folder/certificate" "$folder/key" > "$name.pem.new"
mv "$name.pem.new" "$name.pem" # a process that reads it finds one or the other
