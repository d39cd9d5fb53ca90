package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
)

// TempSuffix marks files on their way to their final name. One that is found
// at a start was never finished and holds nothing.
const TempSuffix = ".tmp"

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := ReadAll(f)
	return data, errors.Join(err, f.Close())
}

// ReadAll reads an open file from its beginning.
func ReadAll(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// WriteAtomic replaces a file: after a crash there is the old content or the
// new one, and once it returned there is the new one.
func WriteAtomic(fsys FS, name string, data []byte) error {
	temp := name + TempSuffix
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(temp))
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// MkdirAll makes a folder with its parents, each made durable.
func MkdirAll(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if err == nil {
		if !info.IsDir {
			return &fs.PathError{Op: "mkdir", Path: name, Err: errors.New("there is a file of this name")}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := MkdirAll(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// RemoveAll removes a file or a folder with all that is in it. What does not
// exist is no error, so that an interrupted removal can be run again.
func RemoveAll(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir {
		entries, err := fsys.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := RemoveAll(fsys, filepath.Join(name, e.Name)); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
