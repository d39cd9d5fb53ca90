package check

import (
	"encoding/json"
	"fmt"
	"os"
)

// Save writes a history as JSON, so that a bad one can be judged again later.
func (h *History) Save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(f).Encode(h); err != nil {
		f.Close()
		return fmt.Errorf("save history: %w", err)
	}
	return f.Close()
}

// Load reads what Save wrote.
func Load(path string) (*History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := &History{}
	if err := json.NewDecoder(f).Decode(h); err != nil {
		return nil, fmt.Errorf("load history %s: %w", path, err)
	}
	return h, nil
}
