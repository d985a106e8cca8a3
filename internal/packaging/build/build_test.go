package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	cases := []struct{ given, version, revision string }{
		{"v0.0.0-20261124212612." + hash, "0.0.0~20261124212612.3941af565e4f", "v0.0.0-20261124212612.3941af565e4f"},
		{"v1.2.3-rc.1", "1.2.3~rc.1", "v1.2.3-rc.1+3941af565e4f"},
		{"v1.2.3-rc.1-2-g" + hash, "1.2.3~rc.1+2.3941af565e4f", "v1.2.3-rc.1-2-g3941af565e4f"},
		{"v1.2.3", "1.2.3", "v1.2.3+3941af565e4f"},
		{"v1.2.3-7-g" + hash, "1.2.3+7.3941af565e4f", "v1.2.3-7-g3941af565e4f"},
		{"v1.2.3-11-g" + hash, "1.2.3+11.3941af565e4f", "v1.2.3-11-g3941af565e4f"},
		{"v1.2.10", "1.2.10", "v1.2.10+3941af565e4f"},
	}
	for i, c := range cases {
		r, err := named(c.given, hash, aDay)
		if err != nil || r.version != c.version || r.revision != c.revision || r.when != aDay {
			t.Errorf("%s: %+v, %v", c.given, r, err)
		}
		if _, err := exec.LookPath("dpkg"); err == nil && i > 0 {
			before := cases[i-1].version
			if exec.Command("dpkg", "--compare-versions", before, "lt", c.version).Run() != nil {
				t.Errorf("for dpkg %s is not before %s", before, c.version)
			}
		}
	}
	for _, given := range []string{"v1.2", "1.2.3", "v1.2.3_4", "v1-2", "v1 2"} {
		if _, err := named(given, hash, aDay); err == nil {
			t.Errorf("%s is taken for a version", given)
		}
	}
}

// small is a build with files in the place of programs, in the root of the source tree.
func small(t *testing.T) *build {
	t.Helper()
	b := &build{release{version: "1.2.3~rc.1", revision: "v1.2.3-rc.1", when: aDay}, t.TempDir()}
	t.Chdir("../../..")
	must(t, os.MkdirAll(filepath.Join(b.out, "files", docFolder), 0o755))
	must(t, os.WriteFile(filepath.Join(b.out, "files", docFolder, "copyright"), nil, 0o600))
	for _, p := range linux {
		for name := range programs {
			file := filepath.Join(b.built(p.arch), name)
			must(t, errors.Join(os.MkdirAll(b.built(p.arch), 0o755), os.WriteFile(file, []byte(file), 0o600)))
		}
	}
	return b
}

var toAFile = regexp.MustCompile(`\]\(([^)\s#]+)|(?m)^\[[^\]]+\]: +([^\s#]+)|file:(/[^\s]+)|man:(\S+)\(1\)`)

// deadEnds are the links of a packed tree's documents and units that lead to no file of it, but for
// those to man pages, which this finds without their programs only where they are packed too.
func deadEnds(t *testing.T, tree string, pages bool) (dead []string, links int) {
	t.Helper()
	must(t, filepath.WalkDir(tree, func(file string, e fs.DirEntry, err error) error {
		unit := strings.Contains(file, "systemd/system/")
		if err != nil || e.IsDir() || filepath.Ext(file) != ".md" && !unit {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range toAFile.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(file), m[1]+m[2])
			switch {
			case strings.Contains(m[1]+m[2], "://") || unit && m[1]+m[2] != "" || !unit && m[3]+m[4] != "":
				continue
			case m[3] != "":
				to = filepath.Join(tree, m[3])
			case m[4] != "" && !pages:
				continue
			case m[4] != "":
				to = filepath.Join(tree, "usr/share/man/man1", m[4]+".1.gz")
			}
			if _, err := os.Stat(to); err != nil {
				dead = append(dead, file+": "+m[0])
			}
			links++
		}
		return err
	}))
	return dead, links
}

// All that the documents of a package or an archive lead to is in it.
func TestEveryLinkInThePackageLeadsToAFileOfIt(t *testing.T) {
	t.Chdir("../../..")
	to := t.TempDir()
	must(t, errors.Join(os.CopyFS(to, os.DirFS("internal/packaging/root")), documents(to)))
	dead, links := deadEnds(t, to, false)
	if len(dead) > 0 || links < 150 {
		t.Errorf("%d links, and these lead nowhere: %q", links, dead)
	}
	for _, name := range []string{"README.md", "docs/service.md", "docs/reports/licences.md", "docs/page.png", "docs/azsim.md"} {
		proof.Is(t, proof.ErrOf(os.Stat(filepath.Join(to, docFolder, name))), nil)
	}
	packed := map[string]string{"docs/page.md": "docs/page.md", "x/y/z.md": "docs/z.md", "README.md": "README.md"}
	const from = "[a](page.md#b) [b](../pump/x.go#L1) [c](https://x.y) [d](#e) [z](../x/y/z.md) [r](../README.md)\n[f]: ../LICENSE\n"
	const want = "[a](page.md#b) [b](" + published + "pump/x.go#L1) [c](https://x.y) [d](#e) [z](z.md) [r](../README.md)\n" +
		"[f]: " + published + "LICENSE\n"
	proof.Same(t, string(closed([]byte(from), "docs/page.md", packed)), want)
	must(t, os.Remove(filepath.Join(to, docFolder, "docs/metrics.md")))
	if dead, _ = deadEnds(t, to, false); len(dead) == 0 {
		t.Error("a missing document is not missed")
	}
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
	proof.Is(t, validate.Index(index), nil)
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
	for _, p := range linux {
		arch, img := p.arch, found[p.arch]
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
	proof.Same(t, digests[0], digests[1], digests)
}
