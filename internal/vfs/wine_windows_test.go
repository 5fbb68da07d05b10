package vfs

import "golang.org/x/sys/windows"

// underWine tells whether this is wine, and not Windows.
func underWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}
