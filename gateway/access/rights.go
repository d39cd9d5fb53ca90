package access

import (
	"slices"

	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// Right is something that can be done with a topic.
type Right uint8

// The rights on topics, in the order of the claim.
const (
	Publish Right = iota
	Subscribe
	Group
	Request
	Reply
	numRights
)

var rightNames = [numRights]string{"publish", "subscribe", "group", "request", "reply"}

func (r Right) String() string { return rightNames[r] }

// adminName is the claim's member that is no list of patterns.
const adminName = "admin"

// RightNames are the members of the claim "tidewire".
func RightNames() []string { return append(slices.Clone(rightNames[:]), adminName) }

// rights are what a token lets its bearer do.
type rights struct {
	topics [numRights][]pattern
	admin  bool
}

// parseRights reads the claim "tidewire"; sub is the token's subject. A member
// that is not known is an error like everywhere: a misspelt right would look
// like one that was not given.
func parseRights(claim []byte, sub string) (r rights, err error) {
	err = wire.Object(claim, RightNames(), func(name string, v wire.Value) (err error) {
		if name == adminName {
			r.admin, err = v.Bool()
			return err
		}
		texts, err := v.Strings(maxPatterns)
		if err != nil {
			return err
		}
		i := slices.Index(rightNames[:], name)
		for _, text := range texts {
			p, err := compile(text, sub)
			if err != nil {
				return fault.New(fault.Invalid, "%q %w", name, err)
			}
			if p != nil {
				r.topics[i] = append(r.topics[i], p)
			}
		}
		return nil
	})
	return r, err
}

func (r *rights) may(right Right, topic string) bool {
	return r.admin || slices.ContainsFunc(r.topics[right], func(p pattern) bool { return p.match(topic) })
}
