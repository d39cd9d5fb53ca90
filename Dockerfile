# The binary is static: the image holds it, its data folder and nothing else.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# A release gives its name: docker build --build-arg VERSION=v1.2.3 .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/tidewire ./cmd/tidewire && mkdir /out/data

FROM scratch
COPY --from=build /out/tidewire /tidewire
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
# http, rpc, raft and gossip; gossip over both.
EXPOSE 8080 7400 7401 7402/tcp 7402/udp
STOPSIGNAL SIGTERM
ENTRYPOINT ["/tidewire"]
# Alone this listens on the container's loopback, which -p does not reach: a node
# lets nobody in from outside unasked, for it authenticates nobody.
# docker-compose.yml has the flags that open it to this machine and no further.
CMD ["serve", "--data", "/data"]
