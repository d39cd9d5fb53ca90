package guard

import (
	"crypto/sha256"
	"sync"
	"time"

	"tidewire/gateway/access"
)

// generationTokens is how many tokens are remembered at least, and half of how
// many at most.
const generationTokens = 1024

// proven remembers the grants of tokens that were verified: a client over plain
// HTTP shows the same one with every call, and proving it costs more than many a
// call itself. What is forgotten is proven again. Nothing else than its end can
// make a token that was good bad, for the key stays as it is.
type proven struct {
	mu         sync.Mutex
	young, old map[digest]*access.Grant // what was used since young began; what was before
}

func (p *proven) find(token string, now time.Time) (d digest, grant *access.Grant) {
	d = sha256.Sum256([]byte(token))
	p.mu.Lock()
	defer p.mu.Unlock()
	grant = p.young[d]
	if grant == nil {
		if grant = p.old[d]; grant != nil {
			p.keepLocked(d, grant)
		}
	}
	if grant.Expired(now) {
		return d, nil // whoever proves it says why it is no good
	}
	return d, grant
}

func (p *proven) keep(d digest, g *access.Grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepLocked(d, g)
}

func (p *proven) keepLocked(d digest, g *access.Grant) {
	if p.young == nil || len(p.young) >= generationTokens {
		p.old, p.young = p.young, make(map[digest]*access.Grant, 16)
	}
	p.young[d] = g
}
