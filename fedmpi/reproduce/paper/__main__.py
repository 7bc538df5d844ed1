"""Print what does not fit together in the paper's tables: python -m fedmpi.reproduce.paper"""

from fedmpi.reproduce.paper.check import findings

for finding in findings():
    print(finding)
