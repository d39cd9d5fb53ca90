package lease

import (
	"slices"
	"strings"
	"unicode/utf8"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// letter is what is known of a dying record.
type letter struct {
	cluster.Intent
	stage stage
}

type stage uint8

const (
	doomed    stage = iota // to be committed
	named                  // its sequence is taken: it may be committed
	intended               // committed: to be appended to the dead-letter topic
	published              // appended: to be committed
)

// Letters are the records to append to the dead-letter topic, by sequence, with acks=all
// and under the sequence of each. One that the log holds no more goes without its value:
// its sequence has to be used up.
func (m *Machine) Letters() (all []cluster.Intent) {
	if m.over {
		return nil
	}
	for _, o := range m.letters {
		if s := m.window.find(o); s != none {
			all = append(all, m.window.at(s).letter.Intent)
		}
	}
	return all
}

// Published says that a letter is in the dead-letter topic.
func (m *Machine) Published(o ident.Offset) {
	s := m.window.find(o)
	if s == none || m.window.at(s).state != dying || m.window.at(s).letter.stage != intended {
		return
	}
	m.window.at(s).letter.stage = published
	m.letters = slices.DeleteFunc(m.letters, func(l ident.Offset) bool { return l == o })
	m.commits.published = append(m.commits.published, o)
}

// die ends deliveries of a record.
func (m *Machine) die(s slot, why string) {
	m.leave(s)
	e := m.window.at(s)
	m.letGo(e)
	e.state, e.hand = dying, nil
	e.letter = &letter{Intent: cluster.Intent{Offset: e.offset, Partition: m.cfg.Letters, Deliveries: int(e.given), Reason: why}}
	m.commits.doomed = append(m.commits.doomed, e.offset)
}

// reason makes what a member says fit to be kept.
func reason(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > cluster.MaxReasonBytes {
		text = text[:cluster.MaxReasonBytes]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	if text == "" {
		return "rejected"
	}
	return text
}
