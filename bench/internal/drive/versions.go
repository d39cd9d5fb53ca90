package drive

// Versions of the peers' modules, as go.mod has them: a test holds both together.
const (
	NATSVersion       = "v2.15.2"
	CentrifugeVersion = "v0.40.1"
)
