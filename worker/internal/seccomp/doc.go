// Package seccomp compiles profiles of system calls to filters, and installs them.
//
// elastic/go-seccomp-bpf compiles too. Its filters take longer to install than all else that a step needs, and take an
// argument of one call for the number of the next. Its tables of numbers are used here.
package seccomp
