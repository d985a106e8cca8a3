package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The tests of this file look at what `make package image` made; `make package-test` runs them.
var out = flag.String("out", "", "the folder that make package and make image wrote to")

func released(t *testing.T, folder string) string {
	t.Helper()
	if *out == "" {
		t.Skip("make package-test makes the packages and runs this")
	}
	return filepath.Join(*out, folder)
}

// needs skips where a program is not installed, and names it.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not here; it is needed for this test", p)
		}
	}
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
	for _, folder := range []string{"package", "image"} {
		dir := released(t, folder)
		sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		must(t, err)
		n := 0
		for line := range strings.Lines(string(sums)) {
			sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
			data, err := os.ReadFile(filepath.Join(dir, file))
			if got := fmt.Sprintf("%x", sha256.Sum256(data)); err != nil || got != sum {
				t.Errorf("%s: %s, not %s, %v", file, got, sum, err)
			}
			n++
		}
		if entries, err := os.ReadDir(dir); err != nil || n != len(entries)-1 || n < 3 {
			t.Errorf("%s: %d sums of %d files, %v", folder, n, len(entries), err)
		}
	}
}

// listed is the text of nfpm.yaml as paths with modes, for a package manager.
func listed(t *testing.T, packager string) []string {
	t.Helper()
	text, err := os.ReadFile("../nfpm.yaml")
	must(t, err)
	if packager == "deb" {
		text = bytes.ReplaceAll(text, []byte("packager: rpm"), []byte("packager: other"))
		text = bytes.ReplaceAll(text, []byte("packager: deb"), []byte("packager: both"))
		text = bytes.ReplaceAll(text, []byte("packager: other"), []byte("packager: deb"))
	}
	list, err := contents(text)
	must(t, err)
	var lines []string
	for _, c := range list {
		lines = append(lines, fmt.Sprintf("%s %o", c.Dst, c.FileInfo.Mode))
	}
	slices.Sort(lines)
	return lines
}

// members are the files of an ar archive, which a deb is.
func members(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	r := bufio.NewReader(f)
	if magic, err := io.ReadAll(io.LimitReader(r, 8)); err != nil || string(magic) != "!<arch>\n" {
		t.Fatalf("%s is no ar archive: %q, %v", file, magic, err)
	}
	found := map[string][]byte{}
	for {
		head := make([]byte, 60)
		if _, err := io.ReadFull(r, head); err == io.EOF {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		size, err := strconv.Atoi(strings.TrimSpace(string(head[48:58])))
		must(t, err)
		data := make([]byte, size+size%2)
		if _, err := io.ReadFull(r, data); err != nil {
			t.Fatal(err)
		}
		found[strings.TrimRight(string(head[:16]), " /")] = data[:size]
	}
}

func TestDebsHoldWhatIsListed(t *testing.T) {
	dir := released(t, "package")
	for _, arch := range architectures {
		parts := members(t, one(t, dir+"/*_"+arch+".deb"))
		z, err := gzip.NewReader(bytes.NewReader(parts["data.tar.gz"]))
		must(t, err)
		want := listed(t, "deb")
		var got []string
		for path, h := range archived(t, z) {
			line := fmt.Sprintf("%s %o", strings.TrimSuffix(strings.TrimPrefix(path, "."), "/"), h.Mode)
			// A deb also has all folders above its files.
			if !strings.HasSuffix(path, "/") || slices.Contains(want, line) {
				got = append(got, line)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nnot\n%s", arch, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		z, err = gzip.NewReader(bytes.NewReader(parts["control.tar.gz"]))
		must(t, err)
		control := archived(t, z)
		for _, name := range []string{"conffiles", "postinst", "prerm", "postrm"} {
			if control["./"+name] == nil {
				t.Errorf("%s has no %s: %v", arch, name, control)
			}
		}
	}
}

func TestRPMsHoldWhatIsListed(t *testing.T) {
	dir := released(t, "package")
	needs(t, "rpm")
	for _, arch := range []string{"x86_64", "aarch64"} {
		const format = `[%{FILENAMES} %{FILEMODES:octal} %{FILEFLAGS:fflags}\n]`
		query := exec.Command("rpm", "-qp", "--qf", format,
			one(t, dir+"/*."+arch+".rpm"))
		text, err := query.Output()
		must(t, err)
		var got []string
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			mode, err := strconv.ParseInt(words[1], 8, 64)
			must(t, err)
			got = append(got, fmt.Sprintf("%s %o", words[0], mode&0o7777))
			config := len(words) > 2 && words[2] == "cn"
			if config != strings.HasPrefix(line, "/etc/queuepump/") {
				t.Errorf("%s: as configuration: %v", line, config)
			}
		}
		slices.Sort(got)
		if want := listed(t, "rpm"); !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nnot\n%s", arch, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestBinariesAreStaticAndBringAuthorities(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, arch := range architectures {
		for name := range programs {
			path := filepath.Join(released(t, "built"), arch, name)
			f, err := elf.Open(path)
			must(t, err)
			defer f.Close()
			libraries, err := f.ImportedLibraries()
			if f.Machine != machines[arch] || err != nil || len(libraries) > 0 {
				t.Errorf("%s: %s, needs %q, %v", path, f.Machine, libraries, err)
			}
			info, err := buildinfo.ReadFile(path)
			must(t, err)
			deps := fmt.Sprint(info.Settings)
			if !strings.Contains(deps, "{-trimpath true}") || !strings.Contains(deps, "{CGO_ENABLED 0}") {
				t.Errorf("%s: %s", path, deps)
			}
			if !strings.Contains(info.String(), "golang.org/x/crypto/x509roots/fallback") {
				t.Errorf("%s has no authorities", path)
			}
		}
	}
}

// TestTheLifeOfAPackage installs a version, then the released one, removes and purges it.
func TestTheLifeOfAPackage(t *testing.T) {
	released(t, "package")
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("this needs root on Linux: it mounts a copy of the root folder")
	}
	arch := map[string]string{"deb": runtime.GOARCH, "rpm": "x86_64"}
	if runtime.GOARCH == "arm64" {
		arch["rpm"] = "aarch64"
	}
	absolute, err := filepath.Abs(*out)
	must(t, err)
	script, err := filepath.Abs("testdata/lifecycle.sh")
	must(t, err)
	t.Chdir("../../..")
	for format, tool := range map[string]string{"deb": "dpkg", "rpm": "rpm"} {
		t.Run(format, func(t *testing.T) {
			needs(t, tool, "unshare", "systemd-sysusers", "systemd-tmpfiles")
			older := &build{release{version: "0.0.0~1", revision: "older", when: aDay}, absolute}
			dir := t.TempDir()
			must(t, older.nfpm(dir, runtime.GOARCH, format))
			before := one(t, dir+"/*."+format)
			now := one(t, filepath.Join(absolute, "package", "*"+arch[format]+"."+format))
			version := versionOf(t, format, now)
			text, err := exec.Command("sh", script, format, before, now, version).CombinedOutput()
			t.Logf("%s", text)
			if err != nil || !bytes.HasSuffix(text, []byte("all is as it was\n")) {
				t.Error(err)
			}
		})
	}
}

// versionOf asks a package for its version.
func versionOf(t *testing.T, format, file string) string {
	t.Helper()
	args := []string{"dpkg-deb", "-f", file, "Version"}
	if format == "rpm" {
		args = []string{"rpm", "-qp", "--qf", "%{VERSION}", file}
	}
	text, err := exec.Command(args[0], args[1:]...).Output()
	must(t, err)
	return strings.TrimSpace(string(text))
}

func TestTheReleasedImageIsSmallAndRuns(t *testing.T) {
	const most = 40 << 20
	found := images(t, filepath.Join(released(t, "image"), "queuepump-image.tar"))
	for _, arch := range architectures {
		img := found[arch]
		if img == nil {
			t.Fatalf("there is no image for %s", arch)
		}
		checkImage(t, img, arch)
		layers, err := img.Layers()
		must(t, err)
		size, err := layers[0].Size()
		t.Logf("%s: %.1f MB compressed", arch, float64(size)/1e6)
		if err != nil || size > most {
			t.Errorf("%s: %d bytes, %v", arch, size, err)
		}
		if arch != runtime.GOARCH || runtime.GOOS != "linux" {
			continue
		}
		r, err := layers[0].Uncompressed()
		must(t, err)
		defer r.Close()
		root := t.TempDir()
		must(t, unpack(r, root))
		runsIn(t, root)
	}
}

// runsIn runs the binaries with nothing around them but the image.
func runsIn(t *testing.T, root string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this needs root: it runs the binaries in a chroot")
	}
	for _, name := range []string{"distributor", "processor"} {
		cmd := exec.Command("/usr/bin/"+name, "version")
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser},
		}
		text, err := cmd.CombinedOutput()
		t.Logf("%s", text)
		if err != nil || !strings.HasPrefix(string(text), name+" ") {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}
