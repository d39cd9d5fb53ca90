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
// make a token that was good bad, as long as the keys stay as they are.
type proven struct {
	mu         sync.Mutex
	by         *access.Verifier         // what they were proven with; nil: the first
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

// keep remembers what a verifier has found, if that is still the one that counts.
func (p *proven) keep(d digest, g *access.Grant, by *access.Verifier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil || p.by == by {
		p.keepLocked(d, g)
	}
}

// forget begins anew, with a verifier that has other keys.
func (p *proven) forget(by *access.Verifier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by, p.young, p.old = by, nil, nil
}

func (p *proven) keepLocked(d digest, g *access.Grant) {
	if p.young == nil || len(p.young) >= generationTokens {
		p.old, p.young = p.young, make(map[digest]*access.Grant, 16)
	}
	p.young[d] = g
}
