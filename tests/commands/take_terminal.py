"""Make standard input the controlling terminal of this session, and become the command."""

import fcntl
import os
import signal
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored by what a shell runs in the background
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
