"""Print what does not fit together in the paper's tables: python -m fedmpi.paper"""

from fedmpi.paper.check import findings

for finding in findings():
    print(finding)
