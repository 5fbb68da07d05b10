//go:build !linux

package treediff
