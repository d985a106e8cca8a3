package main

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// The tests of this file look at what `make release` made; `make package-test` runs them.
var out = flag.String("out", "", "the folder that make release wrote to")

func released(t *testing.T, folder string) string {
	t.Helper()
	if *out == "" {
		t.Skip("make package-test runs this")
	}
	return filepath.Join(*out, folder)
}

// said runs a program, skips where it is not installed, and gives what it printed.
func said(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not here; it is needed for this test", name)
	}
	text, err := exec.Command(name, args...).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && (!failed || name != "lintian") {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}

func one(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	return files[0]
}

func TestSumsAreRight(t *testing.T) {
	dir := released(t, "release")
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	must(t, err)
	kinds := map[string]int{}
	for line := range strings.Lines(string(sums)) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		kinds[filepath.Ext(file)]++
		if filepath.Ext(file) == ".tar" {
			file = "../image/" + file
		}
		data, err := os.ReadFile(filepath.Join(dir, file))
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); err != nil || got != sum {
			t.Errorf("%s: %s, not %s, %v", file, got, sum, err)
		}
	}
	// Platforms, packages, images and the modules of each program on each platform.
	proof.Same(t, fmt.Sprint(kinds), "map[.deb:2 .gz:4 .json:24 .rpm:2 .tar:3 .zip:2]",
		"a release", kinds)
}

// holds looks whether a tree of a package has every document, man page and link.
func holds(t *testing.T, tree, docs, man string) {
	t.Helper()
	files, err := filepath.Glob("../../../docs/*.*")
	must(t, err)
	reports, err := filepath.Glob("../../../docs/reports/*")
	must(t, err)
	for _, file := range append(files, reports...) {
		name, err := filepath.Rel("../../..", file)
		must(t, err)
		proof.Is(t, proof.ErrOf(os.Stat(filepath.Join(tree, docs, name))), nil)
	}
	pages, err := filepath.Glob(filepath.Join(tree, man, "*.1.gz"))
	if err != nil || len(pages) < 70 {
		t.Errorf("%s has %d man pages, %v", tree, len(pages), err)
	}
	if dead, links := deadEnds(t, tree, true); len(dead) > 0 || links < 150 {
		t.Errorf("%d links, and these lead nowhere: %q", links, dead)
	}
}

func TestPackagesHoldWhatIsListed(t *testing.T) {
	dir := released(t, "release")
	for _, arch := range []string{"amd64", "arm64"} {
		deb, tree := one(t, dir+"/*"+arch+".deb"), t.TempDir()
		said(t, "dpkg-deb", "-x", deb, tree)
		holds(t, tree, docFolder, "usr/share/man/man1")
		if text := said(t, "lintian", deb); strings.Contains(text, "E: ") {
			t.Errorf("%s", text)
		}
		rpm := one(t, dir+"/*"+arch+".rpm")
		list := said(t, "rpm", "-qlp", rpm)
		must(t, filepath.WalkDir(tree, func(path string, e os.DirEntry, err error) error {
			if name := strings.TrimPrefix(path, tree); err == nil && !e.IsDir() && !strings.Contains(list, name+"\n") {
				t.Errorf("%s lacks %s", rpm, name)
			}
			return err
		}))
		for _, format := range []string{deb, rpm} {
			configs := said(t, "rpm", "-qcp", rpm)
			if format == deb {
				configs = said(t, "dpkg-deb", "-I", deb, "conffiles")
			}
			proof.Same(t, strings.Count(configs, "/etc/queuepump/"), 2,
				format, "an upgrade overwrites all but", configs)
		}
	}
}

func TestArchivesHoldWhatIsListed(t *testing.T) {
	dir := released(t, "release")
	var built struct{ Version, Commit string }
	text, err := os.ReadFile(filepath.Join(dir, "metadata.json"))
	must(t, errors.Join(err, json.Unmarshal(text, &built)))
	for _, p := range platforms {
		tree := t.TempDir()
		archive := one(t, dir+"/queuepump_*_"+p.os+"_"+p.arch+"*[pz]")
		if p.os == "windows" {
			said(t, "python3", "-m", "zipfile", "-e", archive, tree)
		} else {
			said(t, "tar", "-xzf", archive, "-C", tree)
		}
		top := one(t, tree+"/*")
		holds(t, top, "", "man")
		for name := range programs {
			switch file := filepath.Join(top, name); p {
			case native():
				text := said(t, file, map[bool]string{true: "--help", false: "version"}[name == "azsim"])
				if want := " v" + built.Version + "+" + built.Commit[:12] + " "; name != "azsim" && !strings.Contains(text, want) {
					t.Errorf("%s does not say%s: %s", file, want, text)
				}
				libraries := exec.Command("ldd", file)
				if text, err := libraries.CombinedOutput(); err == nil {
					t.Errorf("%s needs libraries: %s", name, text)
				}
			default:
				var err error
				if p.os == "windows" {
					_, err = pe.Open(file + ".exe")
				} else if p.os == "darwin" {
					_, err = macho.Open(file)
				} else {
					_, err = os.Stat(file)
				}
				proof.Is(t, err, nil, name, "of", p)
			}
		}
	}
}

// TestTheLifeOfAPackage installs a version, then the released one, removes and purges it.
func TestTheLifeOfAPackage(t *testing.T) {
	dir := released(t, "release")
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("this needs root on Linux: it mounts a copy of the root folder")
	}
	for format, now := range map[string]string{
		"deb": one(t, dir+"/*"+runtime.GOARCH+".deb"), "rpm": one(t, dir+"/*"+runtime.GOARCH+".rpm"),
	} {
		t.Run(format, func(t *testing.T) {
			before, version := now, ""
			if format == "deb" {
				tree := filepath.Join(t.TempDir(), "tree")
				before = tree + ".deb"
				version = strings.TrimSpace(said(t, "dpkg-deb", "-f", now, "Version"))
				said(t, "dpkg-deb", "-R", now, tree)
				said(t, "sed", "-i", "s/^Version: .*/Version: 0.0.0~1/", tree+"/DEBIAN/control")
				said(t, "dpkg-deb", "--root-owner-group", "-b", tree, before)
			} else {
				version = said(t, "rpm", "-qp", "--qf", "%{VERSION}", now)
			}
			text := said(t, "sh", "testdata/lifecycle.sh", format, before, now, version)
			t.Logf("%s", text)
			if !strings.HasSuffix(text, "all is as it was\n") {
				t.Error("it broke off")
			}
		})
	}
}

func TestTheReleasedImageIsSmallAndRuns(t *testing.T) {
	const most = 40 << 20
	found := images(t, filepath.Join(released(t, "image"), "queuepump-image.tar"))
	for _, p := range linux {
		img := found[p.arch]
		if img == nil {
			t.Fatalf("there is no image for %s", p.arch)
		}
		checkImage(t, img, p.arch)
		layers, err := img.Layers()
		must(t, err)
		size, err := layers[0].Size()
		t.Logf("%s: %.1f MB compressed", p.arch, float64(size)/1e6)
		if err != nil || size > most {
			t.Errorf("%s: %d bytes, %v", p.arch, size, err)
		}
		if p != native() || os.Geteuid() != 0 {
			continue // it runs the programs in a chroot
		}
		r, err := layers[0].Uncompressed()
		must(t, err)
		defer r.Close()
		root := t.TempDir()
		must(t, unpack(r, root))
		// With nothing around them but the image.
		for _, name := range imagePrograms[:2] {
			cmd := exec.Command("/usr/bin/"+name, "version")
			cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin"}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser},
			}
			text, err := cmd.CombinedOutput()
			if t.Logf("%s", text); err != nil || !bytes.HasPrefix(text, []byte(name+" v")) {
				t.Errorf("%s: %s, %v", name, text, err)
			}
		}
	}
}
