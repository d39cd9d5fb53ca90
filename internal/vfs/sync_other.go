//go:build !linux

package vfs

import (
	"errors"
	"os"
)

func syncData(f *os.File) error { return f.Sync() }

func openWhole(string) (Whole, error) { return nil, errors.ErrUnsupported }
