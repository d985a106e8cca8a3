package serve

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestASocketOfADeadServerIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := New(Options{Listen: "unix:" + path, Log: slog.New(slog.DiscardHandler)})
	l, err := s.listen(t.Context())
	must(t, err)
	if _, err := s.listen(t.Context()); err == nil {
		t.Error("two servers have one socket")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	l.Close()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err = s.listen(t.Context())
	must(t, err)
	l.Close()
	must(t, os.WriteFile(path, []byte("mine"), 0o600))
	if _, err := s.listen(t.Context()); err == nil {
		t.Error("a file was taken for a socket")
	}
	if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, []byte("mine")) {
		t.Errorf("%q, %v", text, err)
	}
}
