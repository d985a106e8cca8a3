package handlers

import (
	"errors"
	"os"
	"path/filepath"
)

// openOut opens or creates the file at a path for appending, locked and with its end repaired.
// There is no info of what is no regular file.
func openOut(path string) (f *os.File, info os.FileInfo, size int64, err error) {
	_, statErr := os.Stat(path)
	f, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, 0, err
	}
	size, regular, err := prepare(f)
	if err == nil && regular && errors.Is(statErr, os.ErrNotExist) {
		err = syncDir(filepath.Dir(path)) // or the file itself could be gone after a power cut
	}
	if err == nil && regular {
		info, err = f.Stat()
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, 0, err
	}
	return f, info, size, nil
}

// Reopen looks at once whether the path names another file now, which else the next lines do.
func (f *File) Reopen() {
	f.reopen.Store(true)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// follow goes on in the file that the path names, which is another one after a rotation. The file
// before holds whole lines, on disk: no commit is divided between two files.
func (f *File) follow() error {
	if f.info == nil {
		return nil // no regular file
	}
	now, err := os.Stat(f.path)
	switch {
	case err == nil && os.SameFile(f.info, now):
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := f.repair(); err != nil {
		return err
	}
	next, info, size, err := openOut(f.path)
	if err != nil {
		return err
	}
	if info == nil {
		_ = next.Close()
		return errors.New("is a file no more")
	}
	_ = f.f.Close() // all of it is on disk
	f.f, f.info, f.size = next, info, size
	f.opts.Log.Info("lines go on in another file of that name", "file", f.path)
	return nil
}

// kept reports whether what was written stays: the file has a name. One that was deleted between
// the look at its name and the write has none.
func (f *File) kept() bool {
	file, is := f.f.(*os.File)
	return !is || f.info == nil || hasName(file)
}
