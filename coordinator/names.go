package coordinator

import (
	"tidewire/coordinator/consensus"
	"tidewire/coordinator/state"
	"tidewire/internal/ident"
)

// Names reads what topics are called out of a store that nobody has open, by
// their ids; those that were deleted too, as far back as its log goes. A
// damaged store gives what was read before the damage, and the error.
func Names(dir string) (map[ident.TopicID]string, error) {
	names := map[ident.TopicID]string{}
	_, err := consensus.Verify(dir, 0, consensus.Checks{
		Command: func(b []byte) error {
			c, err := state.Decode(b)
			if err == nil && c.Create != nil {
				names[c.Create.ID] = c.Create.Spec.Name
			}
			return err
		},
		Snapshot: func(b []byte) (uint64, error) {
			m, err := state.Restore(b)
			if err != nil {
				return 0, err
			}
			for name, t := range m.Snapshot().Topics {
				names[t.ID] = name
			}
			return m.Index(), nil
		},
	})
	return names, err
}
