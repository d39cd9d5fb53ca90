# The binary is static: the image holds it, its data folder and nothing else.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o /out/tidewire ./cmd/tidewire && mkdir /out/data

FROM scratch
COPY --from=build /out/tidewire /tidewire
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/tidewire"]
CMD ["serve", "--data", "/data"]
