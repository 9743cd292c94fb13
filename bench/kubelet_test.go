package main

import "testing"

func TestHeapIn(t *testing.T) {
	got, err := heapIn([]byte("heap profile: 1: 2 [3: 4]\n# runtime.MemStats\n# Alloc = 5\n# HeapAlloc = 7340032\n# HeapSys = 8\n"))
	if err != nil || got != 7<<20 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := heapIn([]byte("heap profile: 1: 2 [3: 4]\n")); err == nil {
		t.Error("a profile without its size has one")
	}
}
