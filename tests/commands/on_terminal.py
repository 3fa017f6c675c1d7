"""Make standard input the controlling terminal of this session, and become the command."""

import fcntl
import os
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
