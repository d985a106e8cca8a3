package serve

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestASocketOfADeadServerIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := New(Options{Listen: "unix:" + path, Log: slog.New(slog.DiscardHandler)})
	l, err := s.listen(t.Context())
	must(t, err)
	proof.Says(t, proof.ErrOf(s.listen(t.Context())), "another process listens", "two servers with one socket")
	info, err := os.Stat(path)
	must(t, err)
	proof.Same(t, info.Mode().Perm(), 0o660, "the socket's mode")
	l.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, err = New(Options{Listen: taken.Addr().String()}).listen(t.Context())
	proof.Says(t, err, "end what listens there, or give another address")
	taken.Close()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err = s.listen(t.Context())
	must(t, err)
	l.Close()
	must(t, os.WriteFile(path, []byte("mine"), 0o600))
	proof.Says(t, proof.ErrOf(s.listen(t.Context())), "--listen", "a file as a socket")
	if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, []byte("mine")) {
		t.Errorf("%q, %v", text, err)
	}
}

// A socket at which no post can be made now may still be somebody's.
func TestASocketOfALiveProcessStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c, err := net.ListenPacket("unixgram", path)
	must(t, err)
	defer c.Close()
	s := &Server{o: Options{Listen: "unix:" + path}}
	proof.Says(t, proof.ErrOf(s.listen(t.Context())), "end what listens there")
	must(t, proof.ErrOf(os.Lstat(path)))
}
