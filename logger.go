package holdfast

import (
	"fmt"
	"io"
	"log"
	"os"
)

// Logger receives messages about what a database does.
type Logger interface {
	Debug(v ...interface{})
	Debugf(format string, v ...interface{})

	Error(v ...interface{})
	Errorf(format string, v ...interface{})

	Info(v ...interface{})
	Infof(format string, v ...interface{})

	Warning(v ...interface{})
	Warningf(format string, v ...interface{})

	Fatal(v ...interface{})
	Fatalf(format string, v ...interface{})

	Panic(v ...interface{})
	Panicf(format string, v ...interface{})
}

// DefaultLogger is a Logger on top of a log.Logger. Debug messages are dropped
// until EnableDebug is called.
type DefaultLogger struct {
	*log.Logger
	debug bool
}

var discardLogger = &DefaultLogger{Logger: log.New(io.Discard, "", 0)}

// EnableTimestamps puts date and time before each message.
func (l *DefaultLogger) EnableTimestamps() { l.SetFlags(l.Flags() | log.Ldate | log.Ltime) }

// EnableDebug lets debug messages through.
func (l *DefaultLogger) EnableDebug() { l.debug = true }

// callDepth is the distance from the caller of a Logger to log.Logger.Output.
const callDepth = 3

func (l *DefaultLogger) print(level, message string) {
	_ = l.Output(callDepth, level+": "+message)
}

// Debug logs its arguments if debugging is enabled.
func (l *DefaultLogger) Debug(v ...interface{}) {
	if l.debug {
		l.print("DEBUG", fmt.Sprint(v...))
	}
}

// Debugf is Debug with a format.
func (l *DefaultLogger) Debugf(format string, v ...interface{}) {
	if l.debug {
		l.print("DEBUG", fmt.Sprintf(format, v...))
	}
}

// Info logs its arguments.
func (l *DefaultLogger) Info(v ...interface{}) { l.print("INFO", fmt.Sprint(v...)) }

// Infof is Info with a format.
func (l *DefaultLogger) Infof(format string, v ...interface{}) {
	l.print("INFO", fmt.Sprintf(format, v...))
}

// Error logs its arguments.
func (l *DefaultLogger) Error(v ...interface{}) { l.print("ERROR", fmt.Sprint(v...)) }

// Errorf is Error with a format.
func (l *DefaultLogger) Errorf(format string, v ...interface{}) {
	l.print("ERROR", fmt.Sprintf(format, v...))
}

// Warning logs its arguments.
func (l *DefaultLogger) Warning(v ...interface{}) { l.print("WARN", fmt.Sprint(v...)) }

// Warningf is Warning with a format.
func (l *DefaultLogger) Warningf(format string, v ...interface{}) {
	l.print("WARN", fmt.Sprintf(format, v...))
}

// Fatal logs its arguments and ends the program.
func (l *DefaultLogger) Fatal(v ...interface{}) {
	l.print("FATAL", fmt.Sprint(v...))
	os.Exit(1)
}

// Fatalf is Fatal with a format.
func (l *DefaultLogger) Fatalf(format string, v ...interface{}) {
	l.print("FATAL", fmt.Sprintf(format, v...))
	os.Exit(1)
}

// Panic logs its arguments and panics.
func (l *DefaultLogger) Panic(v ...interface{}) { l.Logger.Panic(v...) }

// Panicf is Panic with a format.
func (l *DefaultLogger) Panicf(format string, v ...interface{}) { l.Logger.Panicf(format, v...) }
