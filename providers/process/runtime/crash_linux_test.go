package runtime_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	logslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

// crashingNode creates and starts containers until it is killed. Each writes a
// line when it runs.
func crashingNode(root string) int {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	ctx := log.WithLogger(ctx, logslog.FromSlog(logger))
	r, err := runtime.New(ctx, crashingConfig(root))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		config := sandboxConfig(root)
		config.Metadata.Name = fmt.Sprintf("%d-%d", os.Getpid(), i)
		box, err := r.RunPodSandbox(ctx, config, "")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		for range 2 {
			id, err := r.CreateContainer(ctx, box, sh("echo ran; exec sleep 1000"), config)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			if err := r.StartContainer(ctx, id); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}
}

func crashingConfig(root string) runtime.Config {
	return runtime.Config{
		Root: filepath.Join(root, "runtime"), CgroupParent: fmt.Sprintf("/vk-test-crash-%s", filepath.Base(root)),
		Isolation: os.Getenv("TEST_CRASHING_ISOLATION"), SharedNetwork: true,
	}
}

func alive(pid int) bool {
	p, err := procfs.Read(pid)
	return err == nil && !p.Dead()
}
