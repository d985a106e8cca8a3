package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

var aDay = time.Date(2026, 11, 24, 21, 26, 12, 0, time.UTC)

func TestACommitHasAVersion(t *testing.T) {
	const hash = "3941af565e4f"
	// In the order in which package managers take them.
	cases := []struct {
		tag, ahead        string
		changed           bool
		version, revision string
	}{
		{"", "", false, "0.0.0~20261124212612.3941af565e4f", hash},
		{"", "", true, "0.0.0~20261124212612.3941af565e4f+changes", hash + "+changes"},
		{"v1.2.3-rc.1", "0", false, "1.2.3~rc.1", "v1.2.3-rc.1"},
		{"v1.2.3-rc.1", "2", false, "1.2.3~rc.1+20261124212612.3941af565e4f", "v1.2.3-rc.1+" + hash},
		{"v1.2.3", "0", false, "1.2.3", "v1.2.3"},
		{"v1.2.3", "7", false, "1.2.3+20261124212612.3941af565e4f", "v1.2.3+" + hash},
		{"v1.2.10", "0", false, "1.2.10", "v1.2.10"},
	}
	for i, c := range cases {
		r, err := named(c.tag, c.ahead, hash, aDay, c.changed)
		if err != nil || r.version != c.version || r.revision != c.revision || r.when != aDay {
			t.Errorf("%s and %s: %+v, %v", c.tag, c.ahead, r, err)
		}
		if !validVersion.MatchString(r.version) {
			t.Errorf("%s cannot be given as VERSION=", r.version)
		}
		if _, err := exec.LookPath("dpkg"); err == nil && i > 0 {
			before := cases[i-1].version
			if exec.Command("dpkg", "--compare-versions", before, "lt", c.version).Run() != nil {
				t.Errorf("for dpkg %s is not before %s", before, c.version)
			}
		}
	}
	for _, tag := range []string{"v1.2", "v1.2.3_4", "v1-2"} {
		if _, err := named(tag, "0", hash, aDay, false); err == nil {
			t.Errorf("%s is taken for a version", tag)
		}
	}
	if _, err := currentRelease("v1 2"); err == nil {
		t.Error("a version with a blank is taken")
	}
}

// small is a build with files in the place of binaries, in the root of the source tree.
func small(t *testing.T) *build {
	t.Helper()
	b := &build{release{version: "1.2.3~rc.1", revision: "v1.2.3-rc.1", when: aDay}, t.TempDir()}
	t.Chdir("../../..")
	for _, arch := range architectures {
		for _, name := range []string{"distributor", "processor", "loadtest", "copyright"} {
			for _, ext := range []string{"", ".bash", ".zsh", ".fish"} {
				file := filepath.Join(b.built(arch), name+ext)
				err := errors.Join(os.MkdirAll(b.built(arch), 0o755), os.WriteFile(file, []byte(file), 0o600))
				must(t, err)
			}
		}
	}
	return b
}

// archived reads the headers of a tar.
func archived(t *testing.T, r io.Reader) map[string]*tar.Header {
	t.Helper()
	found := map[string]*tar.Header{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return found
		}
		must(t, err)
		found[h.Name] = h
	}
}

func gunzipped(t *testing.T, file string) io.Reader {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	z, err := gzip.NewReader(f)
	must(t, err)
	return z
}

func TestTheArchiveHasWhatPackagesHave(t *testing.T) {
	b := small(t)
	to := t.TempDir()
	must(t, b.archive(to, "arm64"))
	const name = "queuepump_1.2.3~rc.1_linux_arm64"
	found := archived(t, gunzipped(t, filepath.Join(to, name+".tar.gz")))
	for path, mode := range map[string]int64{
		"usr/bin/distributor": 0o755,
		"usr/bin/processor":   0o755,
		"usr/lib/systemd/system/queuepump-distributor@.service": 0o644,
		"usr/lib/systemd/system/queuepump-processor@.service":   0o644,
		"usr/lib/sysusers.d/queuepump.conf":                     0o644,
		"usr/lib/tmpfiles.d/queuepump.conf":                     0o644,
		"etc/queuepump/":                                        0o750,
		"etc/queuepump/pump.yaml.example":                       0o644,
		"usr/share/doc/queuepump/docs/service.md":               0o644,
		"usr/share/doc/queuepump/copyright":                     0o644,
		"usr/share/zsh/site-functions/_processor":               0o644,
	} {
		h := found[name+"/"+path]
		if h == nil || h.Mode != mode || h.Uid != 0 || !h.ModTime.Equal(aDay) {
			t.Errorf("%s: %+v", path, h)
		}
	}
	for path := range found {
		if strings.Contains(path, "vendor-completions") {
			t.Errorf("%s is only for Debian", path)
		}
	}
	if len(found) < 20 {
		t.Errorf("%d entries", len(found))
	}
}

// Every file of the folders that packages are made from is in them: one that is forgotten is found.
func TestNfpmListsAllFiles(t *testing.T) {
	text, err := os.ReadFile("../nfpm.yaml")
	must(t, err)
	list, err := contents(text)
	must(t, err)
	for _, folder := range []string{"systemd", "etc"} {
		entries, err := os.ReadDir(filepath.Join("..", folder))
		if err != nil || len(entries) == 0 {
			t.Fatalf("%s: %d entries, %v", folder, len(entries), err)
		}
		for _, e := range entries {
			src := "internal/packaging/" + folder + "/" + e.Name()
			if !slices.ContainsFunc(list, func(c content) bool { return c.Src == src }) {
				t.Errorf("%s is in no package", src)
			}
		}
	}
	for _, c := range list {
		if strings.HasPrefix(c.Dst, "/etc/") && c.Type != "dir" && c.Type != "config|noreplace" {
			t.Errorf("%s would be overwritten by an upgrade", c.Dst)
		}
	}
}

// images are those of a layout in a tar, by architecture.
func images(t *testing.T, file string) map[string]v1.Image {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	must(t, unpack(f, dir))
	outer, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	inner, err := index.IndexManifest()
	must(t, err)
	found := map[string]v1.Image{}
	for _, m := range inner.Manifests {
		if found[m.Platform.Architecture], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// unpack writes the files of a tar into a folder.
func unpack(r io.Reader, dir string) error {
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		data, err := io.ReadAll(tr)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, data, os.FileMode(h.Mode)))
		if err != nil {
			return err
		}
	}
}

func TestTheImageRunsWithoutRights(t *testing.T) {
	b := small(t)
	to := t.TempDir()
	must(t, b.images(to))
	found := images(t, filepath.Join(to, "queuepump-image.tar"))
	for _, arch := range architectures {
		img := found[arch]
		if img == nil {
			t.Fatalf("there is no image for %s", arch)
		}
		checkImage(t, img, arch)
		// The archive for docker load has the same image.
		other, err := tarball.ImageFromPath(filepath.Join(to, "queuepump-image-"+arch+".tar"), nil)
		must(t, err)
		one, err1 := img.ConfigName()
		two, err2 := other.ConfigName()
		if one != two || err1 != nil || err2 != nil {
			t.Errorf("%s: %v and %v, %v, %v", arch, one, two, err1, err2)
		}
	}
}

// checkImage looks at what an engine looks at.
func checkImage(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	c, err := img.ConfigFile()
	must(t, err)
	if c.OS != "linux" || c.Architecture != arch || c.Config.User != "65532:65532" ||
		!slices.Contains(c.Config.Env, "PATH=/usr/bin") || c.Created.IsZero() {
		t.Errorf("%+v", c)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	must(t, err)
	defer r.Close()
	found := archived(t, r)
	for path, mode := range map[string]int64{
		"usr/bin/distributor": 0o755, "usr/bin/processor": 0o755, "etc/passwd": 0o644, "tmp/": 0o1777,
		"var/lib/queuepump/": 0o750, "usr/share/doc/queuepump/copyright": 0o644,
	} {
		if h := found[path]; h == nil || h.Mode != mode {
			t.Errorf("%s: %+v", path, h)
		}
	}
	if h := found["var/lib/queuepump/"]; h == nil || h.Uid != imageUser {
		t.Errorf("the working folder belongs to another: %+v", h)
	}
}

// The same commit gives the same image.
func TestTheImageIsReproducible(t *testing.T) {
	b := small(t)
	var digests []v1.Hash
	for range 2 {
		img, err := b.imageOf("amd64")
		must(t, err)
		d, err := img.Digest()
		must(t, err)
		digests = append(digests, d)
	}
	if digests[0] != digests[1] {
		t.Errorf("%v", digests)
	}
}
