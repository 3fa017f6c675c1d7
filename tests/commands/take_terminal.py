"""Make standard input the controlling terminal of this session, and run the command."""

import fcntl
import os
import signal
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it in background processes
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
